"""MLflow: records of runs, sending them, the model registry, serving. Nothing here can change a result.

May import: text, files, credentials, inference (serving.py only)
"""
