// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names come from the pod, and paths of what is mounted are those of this host.
func TestEnvironment(t *testing.T) {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	c := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "NAMESPACE", ValueFrom: field("metadata.namespace")},
		{Name: "TLS_SERVER_CERT", Value: "/etc/secret-volume/crt"}, {Name: "TCP_ECHO_SERVER", Value: "1"},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-1"}}
	got := environment(pod, c, map[string]string{"/etc/secret-volume": "/tmp/x"})
	if want := []string{"POD_NAME=p-1", "NAMESPACE=ns", "TLS_SERVER_CERT=/tmp/x/crt", "TCP_ECHO_SERVER=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if v := variables(c); v[0].name != "TCP_PORT" || v[0].port != 3000 {
		t.Errorf("%v", v)
	}
}
