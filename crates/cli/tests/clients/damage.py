"""Tests a drive on a file with damaged blocks or I/O errors: each answer of its server is unchanged or an S3 error, and the server goes on.

    damage.py flips IMAGE ROUNDS    store objects; then ROUNDS times flip some bits of a copy, serve it, and request everything
    damage.py errors IMAGE          store objects; then let reads and writes of a part of the file fail while it is served

IMAGE is an empty drive. Needs TENON (the program), and boto3.
"""

import atexit, hashlib, json, os, random, resource, shutil, signal, subprocess, sys, tempfile
from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError, ResponseStreamingError
from urllib3.exceptions import HTTPError
from drive import TENON, Server, bytes_of

BLOCK, BUCKETS = 4096, ["photos", "versioned"]
SMALL, LARGE = 5000, 1_500_000
# A body that breaks off is an error too: damage found after the headers were sent cannot be reported otherwise.
BROKEN_OFF = (IncompleteReadError, ResponseStreamingError, HTTPClientError, HTTPError)


def store(s3):
    """Stores objects of every kind, older versions, and an upload that is not complete."""
    s3.create_bucket(Bucket="photos")
    s3.put_object(Bucket="photos", Key="empty", Body=b"")
    s3.put_object(Bucket="photos", Key="small", Body=bytes_of(1, SMALL), Metadata={"by": "tests"}, Tagging="a=b")
    s3.put_object(Bucket="photos", Key="large", Body=bytes_of(2, LARGE), ContentType="text/plain")
    s3.copy_object(Bucket="photos", Key="copy", CopySource="photos/large")
    for key, complete in [("joined", True), ("begun", False)]:
        upload = dict(Bucket="photos", Key=key, UploadId=s3.create_multipart_upload(Bucket="photos", Key=key)["UploadId"])
        sizes = [5 << 20, 1000]
        etags = [s3.upload_part(PartNumber=n, Body=bytes_of(n, size), **upload)["ETag"] for n, size in enumerate(sizes, 1)]
        if complete:
            parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)]
            s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    s3.create_bucket(Bucket="versioned")
    s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    for number, size in enumerate([SMALL, LARGE, 100]):
        s3.put_object(Bucket="versioned", Key="versions", Body=bytes_of(number, size))
    s3.delete_object(Bucket="versioned", Key="versions")


def answer(call, **words):
    """Returns the response without what differs from call to call, and with the hash of the body in place of the body."""
    response = call(**words)
    response.pop("ResponseMetadata", None)
    if "Body" in response:
        response["Body"] = hashlib.sha256(response["Body"].read()).hexdigest()
    return json.dumps(response, default=str, sort_keys=True)


def questions(s3, versions):
    yield "the buckets", s3.list_buckets, {}
    for bucket in BUCKETS:
        yield f"the keys of {bucket}", s3.list_objects_v2, {"Bucket": bucket}
        yield f"the keys of {bucket}, folded", s3.list_objects_v2, {"Bucket": bucket, "Delimiter": "e"}
        yield f"the versions of {bucket}", s3.list_object_versions, {"Bucket": bucket}
        yield f"the uploads of {bucket}", s3.list_multipart_uploads, {"Bucket": bucket}
    for key in ["empty", "small", "large", "copy", "joined"]:
        one = {"Bucket": "photos", "Key": key}
        yield f"the head of {key}", s3.head_object, one
        yield f"the bytes of {key}", s3.get_object, one
        yield f"the tags of {key}", s3.get_object_tagging, one
    yield "a range of large", s3.get_object, {"Bucket": "photos", "Key": "large", "Range": "bytes=70000-140000"}
    for version in versions:
        yield f"version {version}", s3.get_object, {"Bucket": "versioned", "Key": "versions", "VersionId": version}


def ask(server, versions):
    """Returns all answers by name, None for an error."""
    answers, s3 = {}, server.client()
    for name, call, words in questions(s3, versions):
        try:
            answers[name] = answer(call, **words)
        except ClientError as error:
            status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
            # The answer to a HEAD has no body, so botocore shows the status as the code.
            assert (status, code) in [(500, "InternalError"), (503, "ServiceUnavailable"), (status, str(status))], f"{name}: {error}"
            assert status in (500, 503), f"{name}: {error}"
            answers[name] = None
        except BROKEN_OFF:
            answers[name] = None
    assert server.process.poll() is None, "the server ended"
    return answers


def compare(expected, answers):
    """Checks that all answers that are not errors are as expected, and returns the names of those that are errors."""
    for name, response in answers.items():
        assert response in (None, expected[name]), f"{name}: {response}, expected {expected[name]}"
    return [name for name, response in answers.items() if response is None]


def start_server(image, folder, **how):
    """Starts a server that is killed when this program ends."""
    server = Server(image, folder, **how)
    atexit.register(server.kill)
    return server


def fill(image, folder):
    """Stores objects and returns the running server, the expected answers, and the ids of the versions."""
    server = start_server(image, folder)
    store(server.client())
    listed = server.client().list_object_versions(Bucket="versioned")["Versions"]
    versions = [version["VersionId"] for version in listed]
    expected = ask(server, versions)
    assert None not in expected.values(), expected
    return server, expected, versions


def used_blocks(image):
    with open(image, "rb") as file:
        blocks = iter(lambda: file.read(BLOCK), b"")
        return [n for n, block in enumerate(blocks) if block.strip(b"\0")]


def flip(image, kind, chance, blocks):
    """Flips some bits of used blocks of one kind."""
    last = os.path.getsize(image) // BLOCK
    # The index lies at the beginning, after the superblocks; frames at the end; runs in between.
    of_kind = {
        "a superblock": [chance.choice([0, 1])],
        "both superblocks": [0, 1],
        "the index": [n for n in blocks if 2 <= n and is_index(image, n)],
        "runs": [n for n in blocks if 2 <= n < last * 3 // 4 and not is_index(image, n)],
        "frames": [n for n in blocks if n >= last * 3 // 4],
        "all": blocks,
    }[kind]
    with open(image, "r+b") as file:
        for block in of_kind if "superblock" in kind else chance.choices(of_kind, k=1 + chance.randrange(6)):
            # A block that is not full has its data at its beginning.
            at = block * BLOCK + chance.randrange(chance.choice([64, 1024, BLOCK]))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def is_index(image, block):
    """Tells whether a block of the first half holds a table or a manifest: bodies repeat a pattern of 32 bytes, the index does not."""
    with open(image, "rb") as file:
        file.seek(block * BLOCK)
        bytes = file.read(BLOCK)
    return bytes[:32] * 2 != bytes[:64] and block < os.path.getsize(image) // BLOCK // 2


def refusal(image, folder):
    """Returns the error with which the image is refused, or None if it can be served."""
    words = [TENON, "drive", "info", image]
    result = subprocess.run(words, capture_output=True, text=True)
    assert "panicked" not in result.stderr, result.stderr
    if result.returncode == 0:
        return None
    lines = [line for line in result.stderr.splitlines() if line.startswith("tenon: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def flips(image, rounds, folder):
    server, expected, versions = fill(image, folder)
    kinds = ["a superblock", "both superblocks", "the index", "runs", "frames", "all"]
    refused, unanswered = {}, {}
    # Half of the rounds damage a drive whose server was killed, the others one that was closed.
    killed = image + ".killed"
    server.kill()
    shutil.copy(image, killed)
    server = start_server(image, folder)
    assert server.end() == 0
    for seed in range(rounds):
        chance, kind = random.Random(seed), kinds[seed % len(kinds)]
        rotten = image + ".rotten"
        shutil.copy(killed if kind != "frames" and seed // len(kinds) % 2 else image, rotten)
        flip(rotten, kind, chance, used_blocks(rotten))
        line = refusal(rotten, folder)
        if line is not None:
            assert "damaged: " in line, line
            refused.setdefault(kind, line)
            continue
        server = start_server(rotten, folder)
        errors = compare(expected, ask(server, versions))
        unanswered[kind] = unanswered.get(kind, []) + errors
        server.end()
        if errors:
            scrubbed = subprocess.run([TENON, "drive", "scrub", rotten], capture_output=True, text=True)
            assert scrubbed.returncode == 4, f"{kind}, seed {seed}: {errors}, {scrubbed}"
    for kind in kinds:
        print(kind, "|", refused.get(kind), "|", sorted(set(unanswered.get(kind, []))))
    assert "both superblocks" in refused and unanswered["runs"], (refused, unanswered)
    assert not unanswered["a superblock"], unanswered


def errors(image, folder):
    server, expected, versions = fill(image, folder)
    assert server.end() == 0
    whole, len_bytes = image + ".whole", os.path.getsize(image)
    shutil.copy(image, whole)

    # Frames, at the end of the device, cannot be read any more; runs and the index can.
    server = start_server(image, folder)
    os.truncate(image, len_bytes // 2)
    failed = compare(expected, ask(server, versions))
    assert "the bytes of small" in failed and "the bytes of large" not in failed, failed
    assert "the keys of photos" not in failed, failed
    server.kill()
    line = refusal(image, folder)
    assert "was cut short" in line, line

    # Frames cannot be written any more: the server's limit of file sizes is half the size of the image.
    shutil.copy(whole, image)

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len_bytes // 2, len_bytes // 2))

    server = start_server(image, folder, preexec_fn=limited)
    s3 = server.client()
    for attempt in range(3):
        for body in [b"new", bytes_of(9, LARGE)]:
            try:
                s3.put_object(Bucket="photos", Key="new", Body=body)
                raise SystemExit("a PUT that could not be written was acknowledged")
            except ClientError as error:
                refused = error
                assert refused.response["Error"]["Code"] == "ServiceUnavailable", refused
    assert "open it again" in str(refused), refused
    assert compare(expected, ask(server, versions)) == []
    server.end()
    server = start_server(image, folder)
    assert compare(expected, ask(server, versions)) == []
    server.client().put_object(Bucket="photos", Key="new", Body=b"new")
    assert server.end() == 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "flips":
            flips(sys.argv[2], int(sys.argv[3]), folder)
        else:
            errors(sys.argv[2], folder)
