"""Advice on where a program should run, from the model that is fitted to the map of a host."""
