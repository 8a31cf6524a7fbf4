"""Read the hosts of the inventory, discover these hosts, and write the results of discovery."""
