"""Where people are: a service, a page that keeps everything on the device, and exports for other systems.

`web_page` writes the page, `vectors` and `mlflow_folder` hand item vectors and models to other systems. All of them ask
the same `Scorer`.
"""

__all__ = ["mlflow_folder", "mlflow_model", "vectors", "web_page"]
