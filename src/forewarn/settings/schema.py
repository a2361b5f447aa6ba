"""Settings schema: every key with its type and default, and the two presets."""

from datetime import timedelta
from typing import Annotated

import msgspec

from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES, check_names
from forewarn.core.policy import EMULATOR as EMULATOR_POLICY
from forewarn.core.policy import PRODUCTION as PRODUCTION_POLICY
from forewarn.core.policy import AnnouncePolicy
from forewarn.settings.gates import Gates
from forewarn.settings.loader import setting_types
from forewarn.settings.nats import NatsSettings
from forewarn.settings.types import (
    DEMONSTRATION,
    GUEST_PORT,
    Count,
    CountOrNone,
    Duration,
    DurationOrNone,
    DurationWithinDay,
    ErrorStatus,
    Flag,
    FleetSource,
    GuestListenOrNone,
    HostNames,
    Interfaces,
    Listen,
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    Name,
    NameOrNone,
    PathOrNone,
    PlatformName,
    PlatformSetting,
    Program,
    RoleName,
    RoleSetting,
    SettingType,
    Speed,
    StoreName,
    StoreSetting,
    Urls,
    parse_text,
)

AnnounceSetting = Annotated[
    AnnouncePolicy, SettingType(lambda value: AnnouncePolicy(parse_text(value)), '"always" or "when-enabled"')
]


class GuestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the guest endpoint."""

    requests_per_second: CountOrNone = 5
    unsupported_version_status: ErrorStatus = 404
    enable_delay: Duration = timedelta(0)
    unreleased_version: Flag = False


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the rules."""

    announce: AnnounceSetting = PRODUCTION_POLICY.announce
    enforce_notice: Flag = PRODUCTION_POLICY.enforce_notice
    idle_after: DurationOrNone = PRODUCTION_POLICY.idle_after
    user_operations: Count = PRODUCTION_POLICY.user_operations
    shortest_notice: Duration = PRODUCTION_POLICY.shortest_notice


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the simulated platform takes for each event type."""

    freeze: Duration = EVENT_TYPES[EventType.FREEZE].default_duration
    reboot: Duration = EVENT_TYPES[EventType.REBOOT].default_duration
    redeploy: Duration = EVENT_TYPES[EventType.REDEPLOY].default_duration
    preempt: Duration = EVENT_TYPES[EventType.PREEMPT].default_duration
    terminate: Duration = EVENT_TYPES[EventType.TERMINATE].default_duration
    spot_rebalance_recommendation: Duration = EVENT_TYPES[EventType.SPOT_REBALANCE_RECOMMENDATION].default_duration


check_names("SimulatedSettings", (name.upper() for name in SimulatedSettings.__struct_fields__), EventType)


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's program, and how to call it."""

    program: Program = ()
    time_limit: DurationWithinDay = timedelta(minutes=30)
    probe_limit: DurationWithinDay = timedelta(minutes=1)
    at_once: Count = 8
    attempts: Count = 10
    first_pause: DurationWithinDay = timedelta(seconds=10)
    longest_pause: DurationWithinDay = timedelta(minutes=10)
    repeatable: Flag = False


class CampaignSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Receivers of notifications about campaigns: each URL gets a POST when a campaign starts, halts or ends."""

    webhooks: Urls = ()
    webhook_secret_file: PathOrNone = None
    webhook_timeout: DurationWithinDay = timedelta(seconds=10)


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate of the operator API, and its key."""

    certificate: PathOrNone = None
    key: PathOrNone = None


class ImportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a fleet file: how many VMs it can define, and how long the service reads one that is imported."""

    vms: Count = 200_000
    time_limit: DurationWithinDay = timedelta(minutes=5)
    """The reading process has a low priority: 200,000 VMs take half a minute, on a busy machine several times that."""


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The retention of the journal."""

    age: DurationOrNone = timedelta(days=400)
    rows: CountOrNone = 1_000_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `data` None means the user's own data directory; `fleet` None means a fleet without VMs."""

    data: PathOrNone = None
    store: StoreSetting = StoreName.SQLITE
    ephemeral: Flag = False
    fleet: FleetSource = None
    listen: GuestListenOrNone = None
    listen_shared: GuestListenOrNone = None
    allow_remote: Flag = False
    listen_link_local: Interfaces = ()
    network: Name = "default"
    operator: Listen = ListenAddress("127.0.0.1", 8170)
    operator_without_tls: Flag = False
    operator_hosts: HostNames = ()
    operator_connections: Count = 1_024
    operator_connections_per_address: Count = 512
    manual_time: Flag = False
    speed: Speed = 1.0
    role: RoleSetting = RoleName.SINGLE
    host: NameOrNone = None
    platform: PlatformSetting = PlatformName.SIMULATED
    gates: Gates = ()
    guest: GuestSettings = GuestSettings()
    policy: PolicySettings = PolicySettings()
    simulated: SimulatedSettings = SimulatedSettings()
    command: CommandSettings = CommandSettings()
    campaigns: CampaignSettings = CampaignSettings()
    tls: TlsSettings = TlsSettings()
    imports: ImportSettings = ImportSettings()
    journal: JournalSettings = JournalSettings()
    nats: NatsSettings = NatsSettings()
    log: LogSettings = LogSettings()


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A set of default settings, with the keys that are required and those that are not allowed."""

    name: str
    command: str
    settings: Settings
    loopback_only: bool
    simulated_time: bool
    required: dict[str, str] = {}
    """Keys without a usable default, with the reason why they must be set."""


EMULATOR = Preset(
    name="emulator",
    command="up",
    settings=Settings(
        fleet=DEMONSTRATION,
        listen=ListenAddress("127.0.0.1", GUEST_PORT),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(
            announce=EMULATOR_POLICY.announce,
            enforce_notice=EMULATOR_POLICY.enforce_notice,
            idle_after=EMULATOR_POLICY.idle_after,
            shortest_notice=timedelta(seconds=10),
        ),
        log=LogSettings(format=LogFormat.TEXT, level=LogLevel.WARNING),
    ),
    loopback_only=True,
    simulated_time=True,
)
"""`forewarn up`: always announces, has no limits, accepts any notice; time can be moved; loopback only."""

PRODUCTION = Preset(
    name="production",
    command="serve",
    settings=Settings(),
    loopback_only=False,
    simulated_time=False,
    required={"platform": "a service must not announce maintenance that is never carried out"},
)
"""`forewarn serve`: the limits of the protocol, in real time."""

SIMULATED_TIME_KEYS = ("manual_time", "speed")
"""Keys that only a preset with manual time allows."""

UNPROTECTED_KEYS = ("listen_shared", "allow_remote")
"""Keys that only the emulator allows: they let callers name the VM that they are, and come from other machines."""

PRESETS = {preset.command: preset for preset in (EMULATOR, PRODUCTION)}
"""The presets by the command that uses each."""


KEYS = setting_types(Settings)
"""Every key, as `section.field` in a section, with its type."""
