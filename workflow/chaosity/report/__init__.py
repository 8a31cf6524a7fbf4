"""Write the report of a host as a single HTML file, and the overview of all hosts."""
