# Prometheus from Debian's package, for a machine that reaches no image registry; its paths are the official image's. See compose.here.yaml.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends prometheus wget >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o nobody -g nogroup /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]
