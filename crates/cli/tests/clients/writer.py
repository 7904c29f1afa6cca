"""Makes random changes in two buckets with boto3: puts with metadata and tags, changes of metadata and tags, deletions."""

import os, random, sys
import boto3

seed, count = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")


def pick_key():
    """Picks a bucket and a key. As in the tests' other changes, the last components of all keys differ."""
    bucket, number, directory = chance.choice(["one", "two"]), chance.randrange(10), chance.choice(["", "d1/", "d1/e/", "d2/"])
    last = f"{bucket}-{directory.replace('/', '-')}{number}"
    return {"Bucket": bucket, "Key": f"{directory}{last}.{'bin' if number % 2 else 'txt'}"}


def description():
    metadata = {}
    if chance.random() < 0.5:
        metadata["color"] = chance.choice(["green", "red", "blue", "black"])
    if chance.random() < 0.4:
        metadata["stage"] = "raw"
    if chance.random() < 0.4:
        metadata["tenon-directory"] = chance.choice(["usr/bin", "usr/share", "etc"])
    return {"Metadata": metadata, "ContentType": chance.choice(["text/plain", "application/octet-stream"])}


def is_gone(error):
    return error.response["Error"]["Code"] in ("NoSuchKey", "404")


for step in range(count):
    at, kind = pick_key(), chance.random()
    try:
        if kind < 0.6:
            tags = {"Tagging": "project=" + chance.choice(["apollo", "mercury"])} if chance.random() < 0.2 else {}
            # The body is never empty: after a PUT of an empty body with tags, Debian's boto3 and MinIO wait for each
            # other on the connection.
            s3.put_object(Body=b"x" * (1 + chance.randrange(8)), **at, **description(), **tags)
        elif kind < 0.75:
            project = chance.choice(["apollo", "gemini", "mercury"])
            s3.put_object_tagging(Tagging={"TagSet": [{"Key": "project", "Value": project}]}, **at)
        elif kind < 0.85:
            s3.copy_object(CopySource=at, MetadataDirective="REPLACE", **at, **description())
        else:
            s3.delete_object(**at)
    except s3.exceptions.ClientError as error:
        if not is_gone(error):
            raise
