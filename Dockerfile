# The image of Convoke.
#
#     docker build -t convoke .          buildah bud -t convoke .          podman build -t convoke .
#
# It runs with a read-only root file system, without capabilities and as any user; only /tmp must be writable.
#
#   RUST_IMAGE   what compiles; RUST_IMAGE's C library must not be newer than BASE_IMAGE's
#   BASE_IMAGE   a Debian, with apt
#   BINARY       `build` compiles; `given` takes target/release/convoke as it is. The buildah and podman of Debian 12 take no
#                default for the name of a stage: there, say --build-arg BINARY=build
#   VERSION, REVISION   for the labels
ARG RUST_IMAGE=docker.io/library/rust:1.95-trixie
ARG BASE_IMAGE=docker.io/library/debian:trixie-slim
ARG BINARY=build

FROM ${RUST_IMAGE} AS build
WORKDIR /source
# First the dependencies, with nothing of our own: this layer stays until they change.
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
COPY core/Cargo.toml core/Cargo.toml
RUN mkdir -p src core/src benches/convoke \
    && touch src/lib.rs core/src/lib.rs benches/convoke/main.rs \
    && echo 'fn main() {}' > src/main.rs \
    && cargo build --release --locked --bin convoke
COPY core core
COPY deploy/team.yaml deploy/team.yaml
COPY deploy/pipelines deploy/pipelines
COPY src src
# Cargo goes by time, and the files may be older than what was built just now.
RUN touch core/src/lib.rs src/lib.rs src/main.rs \
    && cargo build --release --locked --bin convoke \
    && cp target/release/convoke /convoke

FROM scratch AS given
COPY target/release/convoke /convoke

FROM ${BINARY} AS binary

FROM ${BASE_IMAGE}
# Convoke starts no other program. Nothing in here may give rights that the caller lacks.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && echo 'convoke:x:65532:65532:Convoke:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'convoke:x:65532:' >> /etc/group
COPY --from=binary --chmod=0755 /convoke /usr/local/bin/convoke
ENV HOME=/tmp
# How the C library gives memory back. An arena for each thread keeps what one fetch needed, for every thread that ever fetched: with
# 1,000 GitSyncs that is more than all that is kept of them (docs/decisions/0019-one-arena.md).
ENV MALLOC_ARENA_MAX=1
ENV MALLOC_MMAP_THRESHOLD_=65536
ENV MALLOC_TRIM_THRESHOLD_=131072
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/convoke"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Convoke" \
      org.opencontainers.image.description="Runs AI agents on Kubernetes from a Git repository" \
      org.opencontainers.image.source="https://github.com/convoke-dev/convoke" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
