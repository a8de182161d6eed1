"""`forebay store`: the set-up of a store on other machines."""

from argparse import Namespace

from forebay.cli import output

__all__ = ["store"]


def store(args: Namespace) -> None:
    """Print the lifecycle rules for the bucket of a store.

    The bucket then removes what has expired, and the parts of uploads that were
    never completed, which forebay cannot list. The rules replace those the bucket has:
      forebay store lifecycle s3://bucket/prefix > rules.json
      aws s3api put-bucket-lifecycle-configuration --bucket bucket
        --lifecycle-configuration file://rules.json
      gcloud storage buckets update gs://bucket --lifecycle-file=rules.json
      az storage account management-policy create --policy @rules.json …
    """
    from forebay.store import resolve_address
    from forebay.store.backends.object_lifecycle import make_lifecycle

    output.print_json(make_lifecycle(resolve_address(args.address)))
