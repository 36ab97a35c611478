"""The report: a check, a fleet or a comparison as one HTML page that needs no other file.

`page` fills in the templates; each other module makes the values of one kind of page.
"""
