# Lists the events that this VM is told of, and approves those that affect it. For Windows PowerShell 5.1 and PowerShell 7.
$ErrorActionPreference = 'Stop'

$endpoint = if ($env:FOREWARN_ENDPOINT) { $env:FOREWARN_ENDPOINT } else { 'http://169.254.169.254' }
$events = "$endpoint/metadata/scheduledevents?api-version=2020-07-01"

# A proxy would ask about itself: the endpoint is always asked directly. The first answer of the day can take two minutes.
$how = @{ Headers = @{ Metadata = 'true' }; TimeoutSec = 130; UseBasicParsing = $true }
if ($PSVersionTable.PSVersion.Major -ge 6) { $how.NoProxy = $true } else { [System.Net.WebRequest]::DefaultWebProxy = $null }

# An event that was approved may have to wait for other VMs: once is enough.
$script:approved = @()

# The first version of the protocol puts an underscore before the names of VMs.
function Get-PlainName([string] $name) { $name -replace '^_', '' }

# Lists the events, and approves those that wait for this VM.
function Find-Event {
    $name = Get-PlainName (Invoke-RestMethod @how -Uri "$endpoint/metadata/instance/compute/name?api-version=2020-09-01&format=text")

    # The body is empty as long as the service has not begun to watch over this VM; then there are no Events either.
    $all = @((Invoke-RestMethod @how -Uri $events).Events | Where-Object { $_ })
    $mine = @($all | Where-Object { @($_.Resources | ForEach-Object { Get-PlainName $_ }) -contains $name })

    foreach ($event_ in $all) {
        $whose = if ($mine -contains $event_) { 'this VM' } else { 'others' }
        Write-Output "$($event_.EventId) $($event_.EventStatus) $($event_.EventType) $whose"
    }

    $waiting = @($mine | Where-Object { $_.EventStatus -eq 'Scheduled' -and $approved -notcontains $_.EventId })
    if ($waiting.Count -gt 0) {
        # Here is the place to bring everything to safety: after the approval the events start.
        $approval = @{ StartRequests = @($waiting | ForEach-Object { @{ EventId = $_.EventId } }) } | ConvertTo-Json -Depth 3 -Compress
        Invoke-RestMethod @how -Method Post -Uri $events -ContentType 'application/json' -Body $approval | Out-Null
        $waiting | ForEach-Object { Write-Output "approved $($_.EventId)"; $script:approved += $_.EventId }
    }
}

# Looks every second, or once.
if ($args -contains 'once') {
    Find-Event
    exit
}
while ($true) {
    try { Find-Event } catch { [Console]::Error.WriteLine("no valid answer, asking again: $_") }
    Start-Sleep -Seconds 1
}
