# docker build -t vrnet .                                       with CUDA: docker run --gpus all …
# docker build -t vrnet --build-arg TORCH=cpu --build-arg PIP_EXTRA_INDEX_URL=(PyTorch's index of CPU builds) .
# docker run --rm -v "$PWD:/data" -w /data vrnet register ed.nii.gz es.nii.gz --out result --report
FROM python:3.11-slim-bookworm AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --quiet --no-deps --wheel-dir /wheel . && cp requirements/*.txt /wheel

FROM python:3.11-slim-bookworm
ARG TORCH=cuda
ARG PIP_EXTRA_INDEX_URL
COPY --from=wheel /wheel /wheel
RUN pip install --quiet --no-cache-dir --require-hashes --no-deps -r /wheel/$TORCH.txt -r /wheel/core.txt \
    && pip install --quiet --no-deps --no-index /wheel/*.whl && rm -r /wheel \
    && useradd --create-home vrnet
USER vrnet
ENTRYPOINT ["vrnet"]
CMD ["--help"]
