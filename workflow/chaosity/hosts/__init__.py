"""Read the hosts of the inventory, discover them, and write down what was found."""
