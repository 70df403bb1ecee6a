# syntax=docker/dockerfile:1

# The program and what it is linked to, nothing else: no shell, no package manager, no PostgreSQL. It needs a database of
# yours (CALLGATE_DATABASE_URL), and runs as a user without a name, on a root file system that may be read-only.
#   docker build -t callgate .
#   docker run --read-only --cap-drop ALL -e CALLGATE_DATABASE_URL=postgres://… -p 127.0.0.1:7600:7600 callgate
# For the same image from the same commit give both images by their digests.
ARG RUST_IMAGE=docker.io/library/rust:1.94-slim-bookworm
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# The build's folders are not in the binary, so that it is the same from every folder.
ARG CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    RUSTFLAGS="--remap-path-prefix=/src=. --remap-path-prefix=/usr/local/cargo=cargo" \
    cargo build --release --locked --bin callgate \
    && install -D -m 0755 target/release/callgate /out/usr/bin/callgate \
    && install -d -m 0750 /out/run/callgate

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="callgate" \
      org.opencontainers.image.description="The policy plane between a fleet of LLM agents and their tools" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build --chown=0:0 /out/usr/bin/callgate /usr/bin/callgate
# A socket for the probe, which needs no certificate. It may be written where the rest may not.
COPY --from=build --chown=65532:65532 /out/run/callgate /run/callgate
VOLUME ["/run/callgate"]
# Other machines are served by TLS only (CALLGATE_TLS_CERT, CALLGATE_TLS_KEY), or with CALLGATE_INSECURE_BEHIND_PROXY.
ENV CALLGATE_LISTEN=0.0.0.0:7600,unix:/run/callgate/callgate.sock \
    CALLGATE_LOG_FORMAT=json
EXPOSE 7600
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["/usr/bin/callgate", "health"]
ENTRYPOINT ["/usr/bin/callgate"]
CMD ["serve"]
