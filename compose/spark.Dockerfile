# Spark's master, worker and driver in one image: the pyspark package, Debian's Java 17, Busway's readers and the case studies' jobs.
#   docker build -f compose/spark.Dockerfile -t busway-spark .

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS java
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

# Spark itself and what it needs: by far the largest part, built again only when the project file changes.
FROM ${PYTHON_IMAGE} AS environment
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
RUN python -c "import pathlib, tomllib; \
    build = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['tool']['hatch']['build']; \
    folders = [pathlib.Path(name) for name in build['targets']['wheel']['packages']]; \
    [(folder.mkdir(parents=True), (folder / '__init__.py').touch()) for folder in folders]" \
 && python -m venv --without-pip /opt/busway \
 && pip --python /opt/busway/bin/python install --quiet '.[spark,web]' \
 && pip --python /opt/busway/bin/python uninstall --quiet --yes busway \
 && rm -r sdk bus registry services spark
# Spark puts this archive before the package it was made of; from there Python compiles every module again whenever a worker starts.
RUN rm /opt/busway/lib/python3*/site-packages/pyspark/python/lib/pyspark.zip

# What is ours.
FROM environment AS ours
COPY sdk ./sdk
COPY bus ./bus
COPY registry ./registry
COPY services ./services
COPY spark ./spark
RUN pip --python /opt/busway/bin/python install --quiet --no-deps --target /opt/ours .

# The jars that jobs need beyond Spark's. Java trusts what the base image trusts, as pip does.
FROM java AS jars
RUN csplit --quiet --elide-empty-files --prefix=/usr/local/share/ca-certificates/base- --suffix-format=%03d.crt \
    /etc/ssl/certs/ca-certificates.crt '/-----BEGIN CERTIFICATE-----/' '{*}' \
 && update-ca-certificates --fresh >/dev/null 2>&1 \
 && apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven
COPY --from=environment /opt/busway /opt/busway
COPY --from=ours /opt/ours /opt/ours
RUN BUSWAY_SPARK_JARS=/opt/jars PYTHONPATH=/opt/ours /opt/busway/bin/python -m busway_spark.jars --delta

FROM java AS spark
RUN useradd --uid 10001 --no-create-home --home-dir /store --shell /usr/sbin/nologin busway \
 && install -d -o busway -g busway /store
COPY compose/health.py /opt/health.py
COPY --from=environment /opt/busway /opt/busway
COPY --from=ours /opt/ours /opt/ours
COPY --from=jars /opt/jars /opt/jars
COPY examples/case_studies /opt/case_studies
ENV PATH=/opt/busway/bin:/opt/ours/bin:$PATH PYTHONPATH=/opt/ours:/opt/case_studies BUSWAY_SPARK_JARS=/opt/jars \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /store
USER 10001:10001
