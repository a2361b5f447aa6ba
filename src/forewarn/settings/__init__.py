"""Service settings and the source of each value.

Precedence, highest first: flags, environment, `forewarn.toml`, preset.
"""

from forewarn.settings.errors import (
    InvalidSetting,
    InvalidSettingsFile,
    MissingSetting,
    SettingNotFound,
    SettingsConflict,
    SettingsError,
)
from forewarn.settings.gates import Gate, GateSettings
from forewarn.settings.load import load_settings
from forewarn.settings.loader import LoadedSettings, Precedence, SettingSource, iter_values
from forewarn.settings.paths import FILE_NAME, find_data_directory, find_settings_file, user_data_directory
from forewarn.settings.reload import SettingsChange, compare_settings, merge_reloadable
from forewarn.settings.schema import (
    EMULATOR,
    KEYS,
    PRESETS,
    PRODUCTION,
    SIMULATED_TIME_KEYS,
    VARIABLE_PREFIX,
    CampaignSettings,
    CommandSettings,
    GuestSettings,
    JournalSettings,
    LogSettings,
    PolicySettings,
    Preset,
    Settings,
    SimulatedSettings,
    TlsSettings,
    flag_name,
    variable_name,
)
from forewarn.settings.types import (
    DEMONSTRATION,
    NONE,
    GuestInterface,
    ListenAddress,
    LogFormat,
    LogLevel,
    PlatformName,
    SettingType,
    format_value,
)

__all__ = [
    "DEMONSTRATION",
    "EMULATOR",
    "FILE_NAME",
    "KEYS",
    "NONE",
    "PRESETS",
    "PRODUCTION",
    "SIMULATED_TIME_KEYS",
    "VARIABLE_PREFIX",
    "CampaignSettings",
    "CommandSettings",
    "Gate",
    "GateSettings",
    "GuestInterface",
    "GuestSettings",
    "InvalidSetting",
    "InvalidSettingsFile",
    "JournalSettings",
    "ListenAddress",
    "LoadedSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MissingSetting",
    "PlatformName",
    "PolicySettings",
    "Precedence",
    "Preset",
    "SettingNotFound",
    "SettingSource",
    "SettingType",
    "Settings",
    "SettingsChange",
    "SettingsConflict",
    "SettingsError",
    "SimulatedSettings",
    "TlsSettings",
    "compare_settings",
    "find_data_directory",
    "find_settings_file",
    "flag_name",
    "format_value",
    "iter_values",
    "load_settings",
    "merge_reloadable",
    "user_data_directory",
    "variable_name",
]
