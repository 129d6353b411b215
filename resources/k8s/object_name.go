// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
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
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil) // as protobuf
	if err != nil {
		return ""
	}
	if m, err := meta.Accessor(obj); err == nil {
		return cmp.Or(m.GetName(), m.GetGenerateName())
	}
	return ""
}
