"""MLflow: the store, the live curve, what a finished run contains, the model registry. It cannot change a result.

May import: workflow
"""
