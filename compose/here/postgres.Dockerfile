# Debian's PostgreSQL, started as the official image is: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, scripts in
# /docker-entrypoint-initdb.d, data in /var/lib/postgresql/data. For machines that cannot pull that image; see compose.here.yaml.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-common \
 && sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/lib/postgresql/* /usr/lib/postgresql/current \
 && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data
COPY start.sh /usr/local/bin/start.sh
ENV PATH=/usr/lib/postgresql/current/bin:$PATH PGDATA=/var/lib/postgresql/data
USER postgres
STOPSIGNAL SIGINT
ENTRYPOINT ["bash", "/usr/local/bin/start.sh"]
CMD ["postgres"]
