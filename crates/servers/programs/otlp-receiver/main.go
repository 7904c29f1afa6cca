// Runs the OTLP receiver of the OpenTelemetry collector: `otlp-receiver ADDRESS FILE`. Appends each batch of spans that it accepts to
// the file, as a line of OTLP's JSON, and writes the Authorization header of the last one to FILE.authorization.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("usage: otlp-receiver ADDRESS FILE")
	}
	ctx := context.Background()
	file, err := os.OpenFile(arguments[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sink, err := consumer.NewTraces(appendTo(file))
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = arguments[0]
	server.NetAddr.Transport = "tcp"
	server.IncludeMetadata = true
	config.Protocols.HTTP = configoptional.Some(otlpreceiver.HTTPConfig{ServerConfig: server, TracesURLPath: "/v1/traces"})
	settings := receiver.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings()}
	traces, err := factory.CreateTraces(ctx, settings, config, sink)
	if err != nil {
		return err
	}
	if err := traces.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	select {}
}

// appendTo returns a consumer that appends batches to a file.
func appendTo(file *os.File) consumer.ConsumeTracesFunc {
	var mutex sync.Mutex
	marshaler := ptrace.JSONMarshaler{}
	return func(ctx context.Context, traces ptrace.Traces) error {
		text, err := marshaler.MarshalTraces(traces)
		if err != nil {
			return err
		}
		mutex.Lock()
		defer mutex.Unlock()
		authorization := strings.Join(client.FromContext(ctx).Metadata.Get("authorization"), ", ")
		if err := os.WriteFile(file.Name()+".authorization", []byte(authorization), 0o600); err != nil {
			return err
		}
		_, err = file.Write(append(text, '\n'))
		return err
	}
}
