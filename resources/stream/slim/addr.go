// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
	"net/netip"
	"reflect"

	netutils "k8s.io/utils/net"
)

// Addr is an IP address. An address that cannot be read is the zero (invalid)
// Addr and does not make its object unreadable: an object that is missing is
// worse than one without an address.
type Addr struct{ netip.Addr }

// ParseAddr reads what the API server accepts, older forms with leading zeros
// included.
func ParseAddr(s string) Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return Addr{a}
	}
	a, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return Addr{a.Unmap()}
}

// UnmarshalText implements encoding.TextUnmarshaler; it never fails.
func (a *Addr) UnmarshalText(text []byte) error {
	*a = ParseAddr(string(text))
	return nil
}

// AcceptsField implements FieldDecoder.
func (*Addr) AcceptsField(full reflect.Type) error {
	if full.Kind() != reflect.String {
		return fmt.Errorf("slim.Addr keeps a string, not %s", full)
	}
	return nil
}

// DecodeField implements FieldDecoder.
func (a *Addr) DecodeField(f Field) error {
	for v := range f.Values() {
		*a = ParseAddr(string(v))
	}
	return nil
}
