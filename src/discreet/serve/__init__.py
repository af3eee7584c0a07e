"""Where people are: a service, a page that keeps everything on the device, and exports for other systems.

`service` answers over HTTP (`questions`: what may be asked, `shelf`: models, `gate`: limits, `together`, `running`,
`workers` and `worker`: several processes), `web_page` writes the page, `vectors` and `mlflow_folder` hand item vectors
and models to other systems. All of them ask the same `Scorer`.
"""

__all__ = ["mlflow_folder", "mlflow_model", "running", "service", "shelf", "vectors", "web_page"]
