// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All that does not fit is in one error, when the codec is made.
func TestMisfitsAreFoundAtOnce(t *testing.T) {
	type spec struct {
		Priority   int16             `json:"priority"`
		Containers []String          `json:"containers"`
		NodeName   Labels            `json:"nodeName"`
		Weather    string            `json:"weather"`
		hidden     string            // never set
		Volumes    map[string]string `json:"volumes"`
	}
	type misfit struct {
		Meta `json:"metadata"`
		Spec spec `json:"spec"`
	}
	_ = spec{}.hidden
	_, err := Protobuf[misfit, corev1.Pod]()
	if err == nil {
		t.Fatal("it fits")
	}
	for _, want := range []string{"Spec.Priority", "values would be cut", "Spec.Containers", "slim.Labels keeps a map of strings", `no field "weather"`, "Spec.hidden is not exported", "Spec.Volumes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestSlimTypesHaveTheirMetaInPlace(t *testing.T) {
	type elsewhere struct {
		Spec struct{ Meta } `json:"spec"`
	}
	type unnamed struct{ Meta }
	for name, err := range map[string]error{
		"no struct": second(JSON[string]()), "without": second(JSON[struct{}]()), "elsewhere": second(JSON[elsewhere]()), "unnamed": second(JSON[unnamed]()),
	} {
		if err == nil {
			t.Errorf("a type with its Meta %s was taken", name)
		}
	}
}

func second[A any](_ A, err error) error { return err }

func TestBadMessages(t *testing.T) {
	codec, err := Protobuf[Pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "many"}}
	revision, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, message := range map[string][]byte{
		"a revision that is no number": revision,
		"a message that is cut":        revision[:len(revision)-3],
		"a number for the metadata":    protowire.AppendVarint(protowire.AppendTag(nil, FieldNumber[corev1.Pod]("metadata"), protowire.VarintType), 7),
		"no message":                   []byte("\xff\xff\xff\xff"),
	} {
		if err := codec.DecodeProtobuf(NewInterner(), message, new(Pod)); err == nil {
			t.Errorf("%s was decoded", what)
		}
	}
	if err := codec.DecodeJSON([]byte(`{"metadata":{"name":7}}`), new(Pod)); err == nil {
		t.Error("a number for a name was decoded")
	}
}

// An object that is cut behind its metadata says which one it is.
func TestNameOfMessageThatIsCut(t *testing.T) {
	codec, err := Protobuf[Pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", ResourceVersion: "7"}, Spec: corev1.PodSpec{NodeName: "node"}}
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(message) {
		meta, err := codec.DecodeProtobufMeta(NewInterner(), message[:cut])
		if err == nil && meta.Name != "" && meta.Key() != (Key{Namespace: "shop", Name: "web"}) {
			t.Errorf("%d of %d bytes: it is said to be %v", cut, len(message), meta)
		}
	}
	if meta, err := codec.DecodeProtobufMeta(NewInterner(), message[:len(message)-3]); err != nil || meta.Name != "web" || meta.ResourceVersion != 7 {
		t.Errorf("it is %v, %v", meta, err)
	}
}

// Fields that the slim type does not have may be of any number and any type.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	codec, err := Protobuf[Pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	message := protowire.AppendFixed64(protowire.AppendTag(nil, 1000, protowire.Fixed64Type), 1)
	message = protowire.AppendFixed32(protowire.AppendTag(message, 99, protowire.Fixed32Type), 1)
	message = protowire.AppendVarint(protowire.AppendTag(message, 17, protowire.VarintType), 1)
	known, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var pod Pod
	if err := codec.DecodeProtobuf(NewInterner(), append(message, known...), &pod); err != nil || pod.Name != "web" {
		t.Errorf("decoded %q, %v", pod.Name, err)
	}
}

// bomb is a field type of a vendor, with a mistake in it.
type bomb struct{}

func (*bomb) AcceptsField(reflect.Type) error { return nil }
func (*bomb) DecodeField(Field) error         { panic(errors.New("boom")) }
func (*bomb) UnmarshalText([]byte) error      { panic(errors.New("boom")) }

func TestPanickingDecoderIsAnError(t *testing.T) {
	type armed struct {
		Meta `json:"metadata"`
		Spec struct {
			NodeName bomb `json:"nodeName"`
		} `json:"spec"`
	}
	codec, err := Protobuf[armed, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	message, err := (&corev1.Pod{Spec: corev1.PodSpec{NodeName: "node"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for from, err := range map[string]error{
		"protobuf": codec.DecodeProtobuf(NewInterner(), message, new(armed)),
		"JSON":     codec.DecodeJSON([]byte(`{"spec":{"nodeName":"node"}}`), new(armed)),
	} {
		if err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("%s: %v", from, err)
		}
	}
}
