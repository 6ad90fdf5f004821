"""The files of ko-small; elmokit finds them by name, there is nothing to import."""
