// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/skep-operator/skep/resources/explain"
)

// What a client of a library creates, such as an Event, is listed with its name, which is in the body only.
func TestCreatedObjectsAreListedByName(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a.17"}}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
		body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), event)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, "http://api/api/v1/namespaces/default/events", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		d := &moduleTransport{guardedTransport: &guardedTransport{history: explain.NewHistory()}, module: "m"}
		d.recordWrite(req.Clone(t.Context()), &http.Response{StatusCode: http.StatusCreated}, nil, 0)
		if w := d.history.Writes(0); len(w) != 1 || w[0].Name != "a.17" || w[0].Namespace != "default" || w[0].Resource != "events" {
			t.Errorf("%s: %+v", contentType, w)
		}
	}
	if name := nameIn(&http.Request{}); name != "" {
		t.Errorf("of nothing: %q", name)
	}
}
