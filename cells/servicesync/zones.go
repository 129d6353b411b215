// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/resources/cluster/release"
)

// zoneTable numbers the zones of the endpoints of a slice, of which most have one of a few.
type zoneTable struct {
	numbers map[string]string
	text    strings.Builder // a line for each
}

// number returns the number of an endpoint's zone, "" if it has none.
func (z *zoneTable) number(e *endpoint) string {
	if !isZone(e.Zone) {
		return ""
	}
	line := e.Zone
	for _, hint := range e.Hints.ForZones {
		if isZone(hint.Name) {
			line += "\t" + hint.Name
		}
	}
	number, known := z.numbers[line]
	if !known {
		if z.numbers == nil {
			z.numbers = map[string]string{}
		}
		number = strconv.Itoa(len(z.numbers))
		z.numbers[line] = number
		z.text.WriteString(line + "\n")
	}
	return number
}

// isZone reports whether a text can be the name of a zone: what is between lines and fields here is in no label.
func isZone(name string) bool { return name != "" && !strings.ContainsAny(name, "\t\n\r") }

// backendZone is where a backend is, and for which zones. It is a part of the value of a key.
type backendZone struct {
	Zone     string     `json:"zone"`
	ForZones []zoneName `json:"forZones"` // never nil
}

// sizedZone is a zone with the length of its JSON.
type sizedZone struct {
	backendZone
	bytes int
}

// zones are those of the endpoints of a slice, by their numbers.
func (s *endpointSlice) zones() map[string]*sizedZone {
	all := map[string]*sizedZone{}
	for line := range strings.Lines(s.zoneText.String()) {
		names := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		z := &sizedZone{backendZone: backendZone{Zone: names[0], ForZones: []zoneName{}}}
		for _, name := range names[1:] {
			z.ForZones = append(z.ForZones, zoneName{name})
		}
		text, _ := json.Marshal(z.backendZone) // strings
		z.bytes = len(text)
		all[strconv.Itoa(len(all))] = z
	}
	return all
}

// addZones adds the zones of backends, as many as have JSON that is no longer than left. Without its zone a backend is as good as any other, so
// that what does not fit is not reported.
func (v *clusterService) addZones(of []*endpointSlice, c Config, r release.Release, left int) {
	if !release.ZonesOfBackends.In(r) {
		return
	}
	v.Zones = map[string]*backendZone{}
	left -= len(`"zones":{},`)
	for _, slice := range of {
		zones := slice.zones()
		for state, text := range slice.endpoints() {
			if zone := zones[text[1]]; zone != nil && c.isBackend(state, r) {
				left = v.setZones(text[2:], zone, left)
			}
		}
	}
}

// setZones sets the zone of addresses that are backends and have none yet. It returns how many bytes are left.
func (v *clusterService) setZones(addresses []string, zone *sizedZone, left int) int {
	for _, address := range addresses {
		ip, ok := canonical(address)
		if more := len(`"":,`) + len(ip) + zone.bytes; ok && v.Backends[ip] != nil && v.Zones[ip] == nil && more <= left {
			v.Zones[ip] = &zone.backendZone
			left -= more
		}
	}
	return left
}
