"""The report: a check, a fleet or a difference as one HTML page that needs nothing else, from values to text.

`page` has the templates and the one way into them; the other modules make the values of a kind of page.
"""
