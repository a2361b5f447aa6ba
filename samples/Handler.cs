// Lists the events that this VM is told of, and approves those that affect it. For .NET, .NET Framework and Mono.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Threading;

[DataContract]
public class Event
{
    [DataMember] public string EventId { get; set; }
    [DataMember] public string EventStatus { get; set; }
    [DataMember] public string EventType { get; set; }
    [DataMember] public string[] Resources { get; set; }

    // The first version of the protocol puts an underscore before the names of VMs.
    public bool Affects(string name)
    {
        return Resources.Any(resource => resource.TrimStart('_') == name.TrimStart('_'));
    }
}

[DataContract]
public class Document
{
    [DataMember] public Event[] Events { get; set; }
}

[DataContract]
public class StartRequest
{
    [DataMember] public string EventId { get; set; }
}

[DataContract]
public class Approval
{
    [DataMember] public StartRequest[] StartRequests { get; set; }
}

public static class Handler
{
    static readonly string Endpoint =
        Environment.GetEnvironmentVariable("FOREWARN_ENDPOINT") ?? "http://169.254.169.254";
    static readonly string Events = Endpoint + "/metadata/scheduledevents?api-version=2020-07-01";
    static readonly string Name =
        Endpoint + "/metadata/instance/compute/name?api-version=2020-09-01&format=text";

    // An event that was approved may have to wait for other VMs: once is enough.
    static readonly HashSet<string> Approved = new HashSet<string>();

    // Looks every second, or once.
    public static void Main(string[] arguments)
    {
        // A proxy would ask about itself: the endpoint is always asked directly.
        using (var client = new HttpClient(new HttpClientHandler { UseProxy = false }))
        {
            // The first answer of the day can take two minutes.
            client.Timeout = TimeSpan.FromSeconds(130);
            client.DefaultRequestHeaders.Add("Metadata", "true");

            if (arguments.Length > 0 && arguments[0] == "once")
            {
                Look(client);
                return;
            }
            while (true)
            {
                try
                {
                    Look(client);
                }
                catch (Exception error)
                {
                    Console.Error.WriteLine("no valid answer, asking again: {0}", error.GetBaseException().Message);
                }
                Thread.Sleep(1000);
            }
        }
    }

    // Lists the events, and approves those that wait for this VM.
    static void Look(HttpClient client)
    {
        var name = client.GetStringAsync(Name).Result;
        var events = Read(client.GetStringAsync(Events).Result);
        foreach (var each in events)
        {
            var whose = each.Affects(name) ? "this VM" : "others";
            Console.WriteLine("{0} {1} {2} {3}", each.EventId, each.EventStatus, each.EventType, whose);
        }

        var scheduled = events.Where(each => each.Affects(name) && each.EventStatus == "Scheduled");
        var waiting = scheduled.Where(each => !Approved.Contains(each.EventId)).ToArray();
        if (waiting.Length > 0)
        {
            // Here is the place to bring everything to safety: after the approval the events start.
            client.PostAsync(Events, Write(waiting)).Result.EnsureSuccessStatusCode();
        }
        foreach (var each in waiting)
        {
            Approved.Add(each.EventId);
            Console.WriteLine("approved {0}", each.EventId);
        }
    }

    // The body is empty as long as the service has not begun to watch over this VM.
    static Event[] Read(string body)
    {
        if (body.Length == 0)
        {
            return new Event[0];
        }
        var reader = new DataContractJsonSerializer(typeof(Document));
        return ((Document)reader.ReadObject(new MemoryStream(Encoding.UTF8.GetBytes(body)))).Events;
    }

    static HttpContent Write(Event[] events)
    {
        var requests = events.Select(each => new StartRequest { EventId = each.EventId }).ToArray();
        var body = new MemoryStream();
        new DataContractJsonSerializer(typeof(Approval)).WriteObject(body, new Approval { StartRequests = requests });
        return new StringContent(Encoding.UTF8.GetString(body.ToArray()), Encoding.UTF8, "application/json");
    }
}
