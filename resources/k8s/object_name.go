// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// nameIn is the name of the object in the body of a request, or what its name will begin with, or nothing.
func nameIn(req *http.Request) string {
	if req.GetBody == nil {
		return ""
	}
	body, err := req.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return ""
	}
	var partial metav1.PartialObjectMetadata
	if json.Unmarshal(text, &partial) == nil {
		return cmp.Or(partial.Name, partial.GenerateName)
	}
	return nameInProtobuf(text)
}

// protobufPrefix is before the envelope of each object in protobuf.
var protobufPrefix = []byte("k8s\x00")

// nameInProtobuf is the name of an object of any kind in protobuf: all have their metadata in the first field.
func nameInProtobuf(text []byte) string {
	text, is := bytes.CutPrefix(text, protobufPrefix)
	var envelope runtime.Unknown
	var partial metav1.PartialObjectMetadata
	if !is || envelope.Unmarshal(text) != nil || partial.Unmarshal(envelope.Raw) != nil {
		return ""
	}
	return cmp.Or(partial.Name, partial.GenerateName)
}
