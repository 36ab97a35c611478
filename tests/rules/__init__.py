"""Every rule, asked about hosts and images where it is so and where it is almost so."""
