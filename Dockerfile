# forebay serve, or forebay wrap for a server at a URL, in a container. Build with: docker build -t forebay .
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir 'maturin>=1.9,<2' \
    && /venv/bin/maturin build --release --out /wheels

FROM python:3.13-slim-bookworm
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[serve,redis,s3]" && rm -r /wheels \
    && useradd --create-home forebay
USER forebay
# Stored outputs survive the container if this is a volume.
ENV FOREBAY_HOME=/home/forebay/outputs
RUN mkdir -m 700 "$FOREBAY_HOME"
VOLUME /home/forebay/outputs
ENTRYPOINT ["forebay"]
CMD ["--help"]
