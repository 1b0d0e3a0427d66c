"""The upload itself. Knows the hub; is only called when a person says so."""

from __future__ import annotations

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

from app.deploy.upload_set import ATTRIBUTES, UploadFile, gitattributes


def upload(api: HfApi, space: str, files: tuple[UploadFile, ...], *, private: bool) -> str:
    """Make the Space hold exactly these files and return its address.

    Two commits: .gitattributes first, so that the hub already knows what is a large file when the
    files come. What is no longer in the set is deleted. The token is the one of ``hf auth login``.
    """
    url = api.create_repo(
        space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True
    )
    attributes = CommitOperationAdd(ATTRIBUTES, gitattributes().encode())
    api.create_commit(
        space, [attributes], commit_message="Which files are large", repo_type="space"
    )
    names = {file.name for file in files} | {ATTRIBUTES}
    there = api.list_repo_files(space, repo_type="space")
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(file.name, str(file.source)) for file in files
    ]
    operations += [CommitOperationDelete(name) for name in there if name not in names]
    api.create_commit(
        space, operations, commit_message="The page as it is in the project", repo_type="space"
    )
    return str(url)
