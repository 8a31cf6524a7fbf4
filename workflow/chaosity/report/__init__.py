"""The report of a host as one self-contained HTML file, and the overview of all hosts."""
