// Command csi-client calls one method of a CSI driver, by the interface's own generated messages: it prints the answer as JSON.
//
//	csi-client SOCKET SERVICE/METHOD < REQUEST.json
//
// An error of the driver is printed as "CODE: message", with the exit code 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	_ "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: csi-client SOCKET SERVICE/METHOD < REQUEST.json"))
	}
	answer, err := call(os.Args[1], os.Args[2], os.Stdin)
	if err != nil {
		fail(err)
	}
	fmt.Println(protojson.Format(answer))
}

func call(socket, path string, input io.Reader) (proto.Message, error) {
	service, name, _ := strings.Cut(path, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("csi.v1." + service))
	if err != nil {
		return nil, err
	}
	method := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	if method == nil {
		return nil, fmt.Errorf("there is no method %s", path)
	}
	request, err := newMessage(method.Input())
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(input)
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, err
	}
	answer, err := newMessage(method.Output())
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return answer, connection.Invoke(context.Background(), "/csi.v1."+path, request, answer)
}

func newMessage(descriptor protoreflect.MessageDescriptor) (proto.Message, error) {
	found, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		return nil, err
	}
	return found.New().Interface(), nil
}

func fail(err error) {
	if failed, ok := status.FromError(err); ok {
		fmt.Fprintf(os.Stderr, "%s: %s\n", failed.Code(), failed.Message())
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}
