"""Fuzzing of every parser of foreign input, see `fuzz.parser_list`."""
