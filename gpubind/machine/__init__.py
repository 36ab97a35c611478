"""Every query of the operating system, with the three kinds of answers; the budget, trust, and running programs."""
