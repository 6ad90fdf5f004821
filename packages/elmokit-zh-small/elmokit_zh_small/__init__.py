"""The files of zh-small; elmokit finds them by name, there is nothing to import."""
