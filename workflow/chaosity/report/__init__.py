"""Write the report of a host as a single HTML file, and the page of all hosts (overview)."""
