"""Documents that mount files: CDI, Compose, Kubernetes."""
