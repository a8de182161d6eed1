# forebay serve, or forebay wrap for a server at a URL, in a container. Build with: docker build -t forebay .
# `--build-context wheels=FOLDER` takes a wheel from a folder instead of building one, as releases do.
FROM rust:1-slim-bookworm AS build
# Any version of these builds the same wheel.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir 'maturin>=1.12,<2' \
    && /venv/bin/maturin build --release --locked --out /wheels

FROM scratch AS wheels
COPY --from=build /wheels /

FROM python:3.13-slim-bookworm
# The bounds of the dependencies are those of the wheel.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps --find-links /wheels forebay \
    && pip install --no-cache-dir 'forebay[serve,redis,s3]' \
    && useradd --create-home --uid 1000 forebay
# A number, so that Kubernetes can see that it is not root.
USER 1000
# Stored outputs survive the container if this is a volume.
ENV FOREBAY_HOME=/home/forebay/outputs
RUN mkdir -m 700 "$FOREBAY_HOME"
VOLUME /home/forebay/outputs
ENTRYPOINT ["forebay"]
CMD ["--help"]
