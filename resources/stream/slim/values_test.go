// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"math"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAddr(t *testing.T) {
	for text, want := range map[string]netip.Addr{
		"10.0.0.1":        netip.MustParseAddr("10.0.0.1"),
		"010.001.002.003": netip.MustParseAddr("10.1.2.3"), // decimal, as API servers took it
		"fd00::1":         netip.MustParseAddr("fd00::1"),
		"::ffff:10.1.2.3": netip.MustParseAddr("::ffff:10.1.2.3"),
		"":                {},
		"host.example":    {},
		"10.0.0.256":      {},
		"10.0.0.0/8":      {},
	} {
		if got := ParseAddr(text); got.Addr != want {
			t.Errorf("ParseAddr(%q) = %v, want %v", text, got, want)
		}
		quoted, _ := json.Marshal(text)
		var a Addr
		if err := json.Unmarshal(quoted, &a); err != nil || a.Addr != want {
			t.Errorf("JSON %s: %v, %v, want %v", quoted, a, err, want)
		}
	}
}

// A pod with an address that cannot be read is kept, without the address.
func TestUnreadableAddrKeepsItsObject(t *testing.T) {
	codec, err := Protobuf[Pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: corev1.PodStatus{HostIP: "?", PodIPs: []corev1.PodIP{{IP: "?"}, {IP: "10.0.0.1"}}}}
	message, err := full.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var pod Pod
	if err := codec.DecodeProtobuf(NewInterner(), message, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Name != "web" || pod.Status.HostIP.IsValid() || len(pod.Status.PodIPs) != 2 || pod.Status.PodIPs[0].IP.IsValid() || pod.Status.PodIPs[1].IP != ParseAddr("10.0.0.1") {
		t.Errorf("decoded %+v", pod)
	}
}

func TestTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 15, 999, time.FixedZone("", 3600))
	made := MakeTime(at)
	if !made.Time().Equal(at.Truncate(time.Second)) || made.Time().Location() != time.UTC || made.IsZero() {
		t.Errorf("%v became %v", at, made.Time())
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC), {}} {
		if got := MakeTime(at).Time(); !got.Equal(at) {
			t.Errorf("%v became %v", at, got)
		}
	}
	for text, want := range map[string]Time{`"2026-03-01T11:30:15Z"`: made, `"2026-03-01T12:30:15+01:00"`: made, "null": 0} {
		var got Time
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("JSON %s: %v, %v", text, got.Time(), err)
		}
	}
	if text, err := json.Marshal(made); err != nil || string(text) != `"2026-03-01T11:30:15Z"` {
		t.Errorf("written as %s, %v", text, err)
	}
	if text, err := json.Marshal(Time(0)); err != nil || string(text) != "null" {
		t.Errorf("the zero time is written as %s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`"yesterday"`), new(Time)); err == nil {
		t.Error("yesterday was taken for a time")
	}
}

func TestUID(t *testing.T) {
	const uuid = "b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1c55"
	for _, text := range []string{
		"", uuid, "B4A7A9D2-4A4F-4C1C-9D0E-6B8F7E3E1C55", "00000000-0000-0000-0000-000000000000",
		"b4a7a9d24a4f4c1c9d0e6b8f7e3e1c55", "b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1cxx", "not a uuid",
	} {
		u := ParseUID(text)
		if u.String() != text || string(u.API()) != text || u != ParseUID(text) || u.IsZero() != (text == "") {
			t.Errorf("%q became %q", text, u)
		}
	}
	if u := ParseUID(uuid); u.uuid == [16]byte{} {
		t.Error("a uuid is kept as text")
	}
}

func TestRevision(t *testing.T) {
	for text, want := range map[string]Revision{"": 0, "1": 1, "123456789": 123456789, "18446744073709551615": math.MaxUint64} {
		var r Revision
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want || r.String() != text {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"-1", "+1", "1a", " 1", "18446744073709551616", "123456789012345678901"} {
		var r Revision
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken for %d", text, uint64(r))
		}
	}
}
