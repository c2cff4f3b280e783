"""The registry's refusals, with Confluent's error codes.

Here: an exception class and a constructor for each refusal.
Not here: mapping to HTTP (`http.errors`).
"""


class RegistryError(Exception):
    """A refused request.

    Attributes:
        code: Confluent's `error_code`; its first three digits are the HTTP status.
        message: the cause and, if any, a remedy.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema is None else f"Schema {schema} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404, f"Subject '{subject}' was soft deleted already; set permanent=true to delete it permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40405,
        f"Subject '{subject}' was not deleted first; delete it without permanent=true before removing it for good",
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{subject}' version {version} was soft deleted already; set permanent=true to delete it permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{subject}' version {version} was not deleted first; delete it without permanent=true before removing it "
        "for good",
    )


def no_subject_compatibility(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: str) -> RegistryError:
    return RegistryError(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]',
    )


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {why}")


def invalid_version(version: object) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "
        '"latest"',
    )


def invalid_compatibility() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        42206,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def id_mismatch(schema_id: int) -> RegistryError:
    return RegistryError(
        42207, f"The id {schema_id} belongs to another schema; leave it out, or give the id of this one"
    )


def invalid_subject(subject: str, why: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject: {why}")


def invalid_rule_set(why: str) -> RegistryError:
    return RegistryError(42210, f"Invalid ruleset: {why}")


def schema_too_large(size: int, limit: int) -> RegistryError:
    return RegistryError(42209, f"The schema is {size} characters long, {limit} are allowed")


def timed_out(why: str) -> RegistryError:
    return RegistryError(50002, why)


def overloaded() -> RegistryError:
    return RegistryError(503, "Too many large schemas are being judged; try again later")
