# A service that answers from a saved model: not as root, and on a read-only file system.
#
#   docker build -t discreet .
#   docker run --rm --read-only --tmpfs /tmp:exec --cap-drop ALL --security-opt no-new-privileges \
#     -p 127.0.0.1:8000:8000 -v "$PWD/model:/model:ro" -e DISCREET_TOKEN=change-me-please discreet
#
# /tmp is for code that is compiled on a processor other than that of the build. Mount the folder above the model instead
# of the model itself (-v "$PWD/models:/models:ro" … serve /models/films) to have replaced models taken over.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/discreet \
 && /opt/discreet/bin/pip install --no-cache-dir -c constraints.txt ".[serve]"
ENV NUMBA_CACHE_DIR=/opt/discreet/compiled
RUN /opt/discreet/bin/discreet doctor --warm && /opt/discreet/bin/discreet doctor

FROM python:3.12-slim
COPY --from=build /opt/discreet /opt/discreet
ENV PATH=/opt/discreet/bin:$PATH NUMBA_CACHE_DIR=/opt/discreet/compiled PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN useradd --system --no-create-home --uid 10001 discreet
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["discreet"]
CMD ["serve", "/model", "--host", "0.0.0.0"]
