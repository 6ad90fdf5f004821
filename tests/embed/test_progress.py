from elmokit.embed.progress import Progress


def test_speed_and_time_left():
    progress = Progress(lines=3, words=100, bytes_done=500, bytes_total=900, bytes_before=300, seconds=4.0)
    assert progress.words_per_second == 25
    assert progress.seconds_left == 8.0


def test_nothing_is_known_at_first_or_of_a_pipe():
    assert Progress(0, 0, 300, 900, 300, 0.0).seconds_left is None
    assert Progress(0, 0, 300, 900, 300, 0.0).words_per_second == 0
    assert Progress(1, 9, 100, None, 0, 1.0).seconds_left is None
