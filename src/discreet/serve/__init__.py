"""Where people are: a service, a page that keeps everything on the device, and exports for other
systems.

`app` answers over HTTP (`schemas`: what may be asked, `model_registry`, `middleware`: limits,
`batching`, `server`, `workers` and `worker`: several processes), `web_page` writes the page,
`vectors` and `mlflow_model` hand item vectors and models to other systems. All of them ask the
same `Scorer`.
"""

__all__ = [
    "app",
    "mlflow_model",
    "model_registry",
    "server",
    "vectors",
    "web_page",
]
