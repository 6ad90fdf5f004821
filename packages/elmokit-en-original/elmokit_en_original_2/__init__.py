"""The files of en-original; elmokit finds them by name, there is nothing to import."""
