"""Predict the dynamic loader and execve(2). Entries: `container.Container`, `execve.follow`, `fit.fit_files`."""
