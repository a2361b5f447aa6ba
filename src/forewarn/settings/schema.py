"""Settings schema: every key with its type and default, and the two presets."""

from datetime import timedelta

import msgspec

from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.policy import EMULATOR as EMULATOR_POLICY
from forewarn.core.policy import PRODUCTION as PRODUCTION_POLICY
from forewarn.settings.gates import Gates
from forewarn.settings.loader import setting_types
from forewarn.settings.types import (
    DEMONSTRATION,
    AnnounceSetting,
    Count,
    CountOrNone,
    Duration,
    DurationOrNone,
    DurationWithinDay,
    ErrorStatus,
    Flag,
    FleetSource,
    Format,
    Interfaces,
    Level,
    Listen,
    ListenAddress,
    ListenOrNone,
    LogFormat,
    LogLevel,
    Name,
    PathOrNone,
    PlatformName,
    PlatformSetting,
    Program,
    Speed,
    Urls,
)

VARIABLE_PREFIX = "FOREWARN_"


class GuestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the endpoint answers VMs."""

    requests_per_second: CountOrNone = 5
    unsupported_version_status: ErrorStatus = 404
    enable_delay: Duration = timedelta(0)


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules leave to whoever runs the service."""

    announce: AnnounceSetting = PRODUCTION_POLICY.announce
    enforce_notice: Flag = PRODUCTION_POLICY.enforce_notice
    idle_after: DurationOrNone = PRODUCTION_POLICY.idle_after
    user_operations: Count = PRODUCTION_POLICY.user_operations


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the simulated platform takes for each kind of work."""

    freeze: Duration = EVENT_TYPES[EventType.FREEZE].default_duration
    reboot: Duration = EVENT_TYPES[EventType.REBOOT].default_duration
    redeploy: Duration = EVENT_TYPES[EventType.REDEPLOY].default_duration
    preempt: Duration = EVENT_TYPES[EventType.PREEMPT].default_duration
    terminate: Duration = EVENT_TYPES[EventType.TERMINATE].default_duration


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's own program, and how it is called."""

    program: Program = ()
    time_limit: DurationWithinDay = timedelta(minutes=30)
    probe_limit: DurationWithinDay = timedelta(minutes=1)
    at_once: Count = 8
    attempts: Count = 10
    first_pause: DurationWithinDay = timedelta(seconds=10)
    longest_pause: DurationWithinDay = timedelta(minutes=10)
    repeatable: Flag = False


class CampaignSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of campaigns: each of the URLs gets a POST when one starts, halts or ends."""

    webhooks: Urls = ()
    webhook_secret_file: PathOrNone = None
    webhook_timeout: DurationWithinDay = timedelta(seconds=10)


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate with which operators are served, and its key."""

    certificate: PathOrNone = None
    key: PathOrNone = None


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the journal is kept."""

    age: DurationOrNone = timedelta(days=400)
    rows: CountOrNone = 1_000_000


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service writes to stderr, and how."""

    format: Format = LogFormat.JSON
    level: Level = LogLevel.INFO


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set. `data` None is the user's own data directory; `fleet` None is a fleet without VMs."""

    data: PathOrNone = None
    ephemeral: Flag = False
    fleet: FleetSource = None
    listen: ListenOrNone = None
    listen_link_local: Interfaces = ()
    network: Name = "default"
    operator: Listen = ListenAddress("127.0.0.1", 8170)
    operator_without_tls: Flag = False
    manual_time: Flag = False
    speed: Speed = 1.0
    platform: PlatformSetting = PlatformName.SIMULATED
    gates: Gates = ()
    guest: GuestSettings = GuestSettings()
    policy: PolicySettings = PolicySettings()
    simulated: SimulatedSettings = SimulatedSettings()
    command: CommandSettings = CommandSettings()
    campaigns: CampaignSettings = CampaignSettings()
    tls: TlsSettings = TlsSettings()
    journal: JournalSettings = JournalSettings()
    log: LogSettings = LogSettings()


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What holds unless something else is said, and what cannot be said at all."""

    name: str
    command: str
    settings: Settings
    loopback_only: bool
    simulated_time: bool
    required: dict[str, str] = {}
    """Keys whose value in the preset does not count, and why they have to be said."""


EMULATOR = Preset(
    name="emulator",
    command="up",
    settings=Settings(
        fleet=DEMONSTRATION,
        listen=ListenAddress("127.0.0.1", 8180),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(
            announce=EMULATOR_POLICY.announce,
            enforce_notice=EMULATOR_POLICY.enforce_notice,
            idle_after=EMULATOR_POLICY.idle_after,
        ),
        log=LogSettings(format=LogFormat.TEXT, level=LogLevel.WARNING),
    ),
    loopback_only=True,
    simulated_time=True,
)
"""`forewarn up`: always announces, limits nothing, takes any notice; time can be moved; loopback only."""

PRODUCTION = Preset(
    name="production",
    command="serve",
    settings=Settings(),
    loopback_only=False,
    simulated_time=False,
    required={"platform": "a service that announces what nobody carries out misleads its guests"},
)
"""`forewarn serve`: the protocol's own limits, in real time."""

SIMULATED_TIME_KEYS = ("manual_time", "speed")
"""Keys that only a preset with a time of its own allows."""

PRESETS = {preset.command: preset for preset in (EMULATOR, PRODUCTION)}
"""The presets by the command that uses each."""


KEYS = setting_types(Settings)
"""Every key, `section.field` where it is in a section, and what it takes."""


def variable_name(key: str) -> str:
    """Return the environment variable of a key."""
    return VARIABLE_PREFIX + key.replace(".", "_").upper()


def flag_name(key: str) -> str:
    """Return the flag of a key."""
    return "--" + key.replace(".", "-").replace("_", "-")
