// What the page says, in English, Korean and Chinese. Every label has all three.

const LABELS = {
  explorer: ["explorer", "탐색기", "探索器"],
  model: ["Model", "모델", "模型"],
  language: ["Language of this page", "화면 언어", "界面语言"],
  dark: ["Dark colours", "어두운 색", "深色"],
  light: ["Light colours", "밝은 색", "浅色"],
  go: ["Go", "확인", "确定"],
  tokenAsked: [
    "This server asks for a token. It is kept until this tab is closed.",
    "이 서버는 토큰이 필요합니다. 탭을 닫을 때까지만 보관됩니다.",
    "此服务器需要令牌。令牌只保存到关闭此标签页为止。",
  ],
  tokenWrong: ["That was not this server's token.", "이 서버의 토큰이 아닙니다.", "这不是此服务器的令牌。"],
  unreachable: [
    "The server does not answer. Is elmo serve still running?",
    "서버가 응답하지 않습니다. elmo serve가 실행 중인지 확인하세요.",
    "服务器没有响应。elmo serve 还在运行吗？",
  ],
  busy: [
    "The server is busy. Try again in a moment.",
    "서버가 바쁩니다. 잠시 후 다시 시도하세요.",
    "服务器正忙，请稍后再试。",
  ],
  refused: ["The server says:", "서버의 답:", "服务器提示："],
  failed: ["Something went wrong on this page:", "화면에 문제가 생겼습니다:", "页面出现问题："],
  views: ["Views", "보기", "视图"],
  compare: ["Compare", "비교", "比较"],
  usages: ["Usages", "쓰임", "用法"],
  neighbours: ["Neighbours", "이웃", "近邻"],
  predictions: ["Language model", "언어 모델", "语言模型"],
  inside: ["Inside", "내부", "内部"],
  examples: ["Examples", "예시", "示例"],
  edit: ["Edit", "고치기", "编辑"],
  done: ["Done", "완료", "完成"],
  word: ["Word", "단어", "词"],
  sentence: ["Sentence", "문장", "句子"],
  oneALine: ["One sentence per line", "한 줄에 한 문장", "每行一个句子"],
  picture: ["Picture", "그림", "图片"],
  table: ["Table", "표", "表格"],
  copyLink: ["Copy link", "링크 복사", "复制链接"],
  copied: ["Copied", "복사됨", "已复制"],
  tooLongToShare: [
    "The text is too long for an address: the link holds everything else.",
    "글이 너무 길어 주소에 담지 못합니다. 링크에는 나머지만 들어갑니다.",
    "文本太长，无法放入网址：链接中包含其余内容。",
  ],
  layers: ["Layers", "층", "层"],
  layerSlider: ["From layer to layer", "층 사이를 움직이기", "在层之间移动"],
  weight: ["Weight of layer {j}", "{j}층의 비중", "第 {j} 层的权重"],
  gamma: ["γ, the scale", "γ, 크기", "γ（缩放）"],
  average: ["Average", "평균", "平均"],
  ownMix: ["The model's mix", "모델의 가중합", "模型的加权"],
  cosine: ["cosine", "코사인", "余弦"],

  compareTitle: ["One word, many sentences", "한 단어, 여러 문장", "一个词，多个句子"],
  compareIntro: [
    "Choose a word. Each of its occurrences has a vector of its own; the map shows how alike they are.",
    "단어를 고르세요. 같은 단어라도 문장마다 벡터가 다릅니다. 지도는 서로 얼마나 비슷한지 보여 줍니다.",
    "选择一个词。它的每次出现都有自己的向量；下图显示它们有多相似。",
  ],
  heatMap: ["How alike the occurrences are", "쓰임이 서로 얼마나 비슷한가", "各次出现的相似程度"],
  mostAlike: ["Most alike", "가장 비슷함", "最相似"],
  leastAlike: ["Least alike", "가장 다름", "最不相似"],
  and: ["and", "·", "和"],
  onlyOnce: [
    "This word occurs once. Choose one that several sentences have (underlined).",
    "이 단어는 한 번만 나옵니다. 밑줄이 있는, 여러 번 나오는 단어를 고르세요.",
    "该词只出现一次。请选择在多个句子中出现的词（带下划线）。",
  ],
  severalWords: [
    "“New York” is a sequence of words, “bank|banks” either of two.",
    "“뉴욕 시”는 이어진 단어, “배를|배가”는 둘 중 하나입니다.",
    "“New York” 是连续的词，“bank|banks” 是二者之一。",
  ],
  tooManyUses: [
    "The map shows the first occurrences only; the table has all.",
    "지도는 앞쪽 쓰임만 보여 줍니다. 표에는 모두 있습니다.",
    "图中只显示前面的出现；表格包含全部。",
  ],
  layerZeroSame: [
    "Layer 0 reads the spelling alone: there, all are equal.",
    "0층은 철자만 읽으므로 모두 같습니다.",
    "第 0 层只看拼写，因此全都相同。",
  ],
  gammaNote: [
    "γ stretches every vector and leaves the cosines as they are.",
    "γ는 모든 벡터를 늘리지만 코사인은 그대로입니다.",
    "γ 会拉伸所有向量，但余弦不变。",
  ],

  usagesTitle: ["Every use of a word, as a map", "단어의 모든 쓰임을 지도로", "一个词的所有用法地图"],
  usagesIntro: [
    "Near points are similar uses. Colours are groups found by k-means. A second text shows drift.",
    "가까운 점은 비슷한 쓰임입니다. 색은 k-평균으로 찾은 무리입니다. 두 번째 글을 넣으면 의미 변화를 봅니다.",
    "相近的点是相似的用法；颜色是 k-均值得到的类。加入第二个文本可以看到变化。",
  ],
  text: ["Text", "글", "文本"],
  textA: ["Text A", "글 A", "文本 A"],
  textB: ["Text B", "글 B", "文本 B"],
  addSecond: ["Add a second text", "두 번째 글 추가", "添加第二个文本"],
  removeSecond: ["Remove the second text", "두 번째 글 빼기", "移除第二个文本"],
  openFile: ["Open a file", "파일 열기", "打开文件"],
  notText: ["This file is not text in UTF-8.", "UTF-8 글 파일이 아닙니다.", "该文件不是 UTF-8 文本。"],
  fileTooLarge: ["Files up to 5 MB can be opened here.", "5 MB까지 열 수 있습니다.", "最多可打开 5 MB 的文件。"],
  groups: ["Groups", "무리", "类"],
  group: ["group", "무리", "类"],
  automatic: ["automatic", "자동", "自动"],
  uses: ["{count} uses", "{count}회", "{count} 次"],
  drift: ["Drift from A to B", "A에서 B로의 변화", "从 A 到 B 的变化"],
  driftNote: [
    "1 − cosine between the mean vectors of both texts",
    "두 글의 평균 벡터 사이의 1 − 코사인",
    "两个文本平均向量之间的 1 − 余弦",
  ],
  component: [
    "component {number}: {percent} % of the variance",
    "성분 {number}: 분산의 {percent}%",
    "主成分 {number}：方差的 {percent}%",
  ],
  chooseWord: ["Choose a word of the text", "글 속의 단어를 고르세요", "请选择文本中的一个词"],
  notThere: ["No text has this word.", "글에 이 단어가 없습니다.", "文本中没有这个词。"],
  frequent: ["Frequent words", "자주 나오는 단어", "常见词"],
  usesCut: [
    "The map shows the first 400 uses of each text.",
    "지도는 글마다 처음 400개의 쓰임을 보여 줍니다.",
    "图中显示每个文本的前 400 次出现。",
  ],

  neighboursTitle: ["Nearest words in context", "문맥 속 가장 가까운 단어", "上下文中最近的词"],
  neighboursIntro: [
    "Choose a word of the text: these words, each in its own sentence, have the nearest vectors.",
    "글에서 단어를 고르세요. 각자의 문장에서 벡터가 가장 가까운 단어들을 보여 줍니다.",
    "选择文本中的一个词：以下是各自句子中向量最接近的词。",
  ],
  otherWords: ["Other spellings only", "다른 철자만", "仅其他词形"],
  wordsCut: ["The first 4,000 words are read here.", "처음 4,000단어만 읽습니다.", "此处只读取前 4,000 个词。"],

  predictionsTitle: ["What the model expects", "모델이 예상하는 것", "模型的预期"],
  predictionsIntro: [
    "One direction reads from the left, the other from the right. High bars are words that surprised it.",
    "한 방향은 왼쪽부터, 다른 방향은 오른쪽부터 읽습니다. 높이 솟은 단어일수록 예상 밖입니다.",
    "一个方向从左读，另一个从右读。柱子越高，该词越出乎意料。",
  ],
  wouldPrecede: ["Could stand before", "앞에 올 수 있는 말", "可能在前"],
  wouldFollow: ["Could come next", "다음에 올 수 있는 말", "可能在后"],
  couldReplace: ["Could replace", "바꿔 쓸 수 있는 말", "可以替换"],
  forward: ["forward", "정방향", "正向"],
  backward: ["backward", "역방향", "反向"],
  surprise: ["Surprise in bits", "놀라움(비트)", "意外程度（比特）"],
  probability: ["probability", "확률", "概率"],
  sentenceBegin: ["(beginning)", "(문장 시작)", "（句首）"],
  sentenceEnd: ["(end)", "(문장 끝)", "（句尾）"],
  unknownWord: ["(rare word)", "(드문 단어)", "（罕见词）"],
  cannotPredict: [
    "This model comes without its output layer: it has vectors but predicts no words.",
    "이 모델에는 출력층이 없어 단어를 예측하지 못합니다.",
    "该模型没有输出层：只有向量，不能预测词。",
  ],
  clickToReplace: [
    "Choose a word of the sentence to see what could replace it.",
    "문장에서 단어를 고르면 바꿔 쓸 수 있는 말을 보여 줍니다.",
    "选择句中的一个词，查看可以替换它的词。",
  ],

  insideTitle: ["How a word becomes a vector", "단어가 벡터가 되기까지", "词如何变成向量"],
  insideIntro: [
    "Every picture is drawn from the weights of the model as it reads this word in this sentence.",
    "모든 그림은 모델이 이 문장에서 이 단어를 읽을 때의 실제 값으로 그렸습니다.",
    "所有图都由模型在此句中读取该词时的真实数值绘制。",
  ],
  stepBytes: ["1. Bytes", "1. 바이트", "1. 字节"],
  stepBytesNote: [
    "The word is spelled as UTF-8 bytes between two marks, and filled up to {columns} places. Each gets a vector of {width} numbers.",
    "단어를 두 표지 사이의 UTF-8 바이트로 적고 {columns}칸까지 채웁니다. 칸마다 숫자 {width}개의 벡터가 있습니다.",
    "词写成两个标记之间的 UTF-8 字节，并填充到 {columns} 个位置。每个位置是 {width} 个数的向量。",
  ],
  stepFilters: ["2. Filters", "2. 필터", "2. 卷积核"],
  stepFiltersNote: [
    "Filters of widths {first} to {last} slide over the bytes; each keeps its largest answer. Here are the windows of the strongest.",
    "폭 {first}–{last}의 필터가 바이트 위를 미끄러지며 가장 큰 값만 남깁니다. 가장 강한 필터의 창을 보입니다.",
    "宽度 {first} 到 {last} 的卷积核滑过字节，各自保留最大值。图中是最强者的窗口。",
  ],
  stepHighway: ["3. Highway and projection", "3. 하이웨이와 투영", "3. 高速网络与投影"],
  stepHighwayNote: [
    "A gate decides, feature by feature, how much passes changed. Here it is {open} % open on average. A projection then makes {width} numbers.",
    "게이트가 특징마다 얼마나 바꾸어 통과시킬지 정합니다. 여기서는 평균 {open}% 열려 있습니다. 그다음 투영이 숫자 {width}개를 만듭니다.",
    "门控逐个特征决定变换的比例，这里平均打开 {open}%。随后投影得到 {width} 个数。",
  ],
  stepDirections: ["4. Two directions", "4. 두 방향", "4. 两个方向"],
  stepDirectionsNote: [
    "Two LSTM stacks of {layers} layers read the sentence, one from each end; neither sees what the other has read. Both halves together are a layer.",
    "{layers}층 LSTM 두 묶음이 문장을 양 끝에서 읽습니다. 서로 읽은 것은 보지 못합니다. 두 반쪽을 합친 것이 한 층입니다.",
    "两个 {layers} 层 LSTM 分别从两端读句子，互不可见。两半拼接成一层。",
  ],
  stepLayers: ["5. Layers and their mix", "5. 층과 가중합", "5. 各层及其加权"],
  stepLayersNote: [
    "Each column is one of {width} numbers, blue above zero and grey below. Move the sliders: the last row is their sum.",
    "각 열은 숫자 {width}개 중 하나입니다. 0보다 크면 파랑, 작으면 회색입니다. 슬라이더를 움직이면 마지막 줄인 합이 바뀝니다.",
    "每列是 {width} 个数之一，蓝色为正，灰色为负。移动滑块：最后一行是它们的和。",
  ],
  widths: ["Widths", "폭", "宽度"],
  gateOpen: ["gate, open on average", "게이트, 평균 열림", "门控，平均打开"],
  characters: ["bytes", "바이트", "字节"],
  features: ["features", "특징", "特征"],
  wordWidth: ["word", "단어", "词"],
  cell: ["LSTM cell", "LSTM 셀", "LSTM 单元"],
  direction: ["direction", "한 방향", "单方向"],
  vector: ["vector", "벡터", "向量"],
  beginMark: ["begin", "시작", "始"],
  endMark: ["end", "끝", "末"],
  width: ["width", "폭", "宽"],
  filter: ["filter", "필터", "卷积核"],
  filters: ["filters", "필터", "个卷积核"],
  layerNumber: ["Layer {j}", "{j}층", "第 {j} 层"],
  mix: ["mix", "가중합", "加权和"],
};

export const LANGUAGES = ["en", "ko", "zh"];
let language = "en";

/** Which of the page's languages the browser prefers. */
export function preferredLanguage() {
  const wanted = (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2).toLowerCase());
  return wanted.find((tag) => LANGUAGES.includes(tag)) ?? "en";
}

/** From now on the page speaks this language. */
export function speak(wanted) {
  language = LANGUAGES.includes(wanted) ? wanted : "en";
  document.documentElement.lang = language;
}

/** A label in the language of the page; `{name}` in it becomes `values.name`. */
export function say(key, values = {}) {
  const label = LABELS[key][LANGUAGES.indexOf(language)];
  return label.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
