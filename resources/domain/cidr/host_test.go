// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cidr

import (
	"fmt"
	"slices"
	"testing"
)

// Addresses at which a machine is reached, in their usual form, and texts that are none.
func TestParseHost(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "192.0.2.1": "192.0.2.1", "100.64.0.1": "100.64.0.1", "fd00:0::1": "fd00::1", "2001:db8::1": "2001:db8::1", "::ffff:10.0.0.3": "10.0.0.3",
		"": "", "host": "", "1.2.3": "", "0.0.0.0": "", "::": "", "127.0.0.1": "", "::1": "", "::ffff:127.0.0.1": "", "169.254.169.254": "", "fe80::1": "", "fe80::1%eth0": "",
		"2001:db8::1%eth0": "", "224.0.0.1": "", "ff02::1": "", "255.255.255.255": "", "10.0.0.0/8": "",
	} {
		a, ok := ParseHost(text)
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%q: %v, %t", text, a, ok)
		}
	}
}

// Of each family the first ones count, and each once.
func TestHosts(t *testing.T) {
	texts := []string{"0.0.0.0", "10.0.1.1", "::ffff:10.0.1.1"}
	for n := range MaxOfNode {
		texts = append(texts, fmt.Sprintf("10.0.0.%d", n), fmt.Sprintf("fd00::%d", n+1))
	}
	all, refused := Hosts(texts)
	if len(all) != 2*MaxOfNode || all[0].String() != "10.0.1.1" || !slices.Equal(refused, []string{"0.0.0.0", "10.0.0.7"}) {
		t.Errorf("%v, without %q", all, refused)
	}
}
