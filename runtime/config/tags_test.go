// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

type tagged struct {
	On       bool              `flag:"on" usage:"Turn it on" short:"o"`
	Interval time.Duration     `flag:"interval" usage:"Interval" min:"100ms" zero:"disables it" hidden:"true"`
	Between  time.Duration     `flag:"between" usage:"Between" min:"1s" max:"1m"`
	Count    int               `flag:"count" usage:"Count" max:"5"`
	Share    float64           `flag:"share" usage:"Share" min:"0" max:"1"`
	Mode     string            `flag:"mode" usage:"Mode" oneof:"a,b,c" env:"MODE,OTHER"`
	List     []string          `flag:"list" usage:"List" list:"white space"`
	Map      map[string]string `flag:"map" usage:"Map"`
	Old      uint16            `flag:"old" usage:"Old" deprecated:"use --new"`
	Method   string
}

func (tagged) Flags(fs *pflag.FlagSet) { fs.String("method", "m", "Declared by a method") }

func TestTags(t *testing.T) {
	defaults := tagged{On: true, Between: time.Minute, Mode: "b", List: []string{"x", "y"}, Map: map[string]string{"k": "v"}, Method: "m"}
	s := NewSchema()
	for _, err := range s.Add("m", reflect.ValueOf(defaults), func(fs *pflag.FlagSet) { TagFlags(fs, reflect.ValueOf(defaults)); defaults.Flags(fs) }) {
		t.Error(err)
	}
	var got []string
	for _, o := range s.Options() {
		line := strings.Join([]string{o.Name, o.Shorthand, o.Type, o.Default, o.Deprecated, strings.Join(o.variables, "+"), o.bare}, "|")
		if o.Hidden {
			line += "|hidden"
		}
		got = append(got, line)
	}
	want := []string{
		"on|o|bool|true|||true", "interval||duration|0s||||hidden", "between||duration|1m0s|||", "count||int|0|||", "share||float64|0|||",
		"mode||string|b||MODE+OTHER|", "list||stringSlice|x y|||", "map||stringToString|k=v|||", "old||uint16|0|use --new|||hidden", "method||string|m|||",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestViolations(t *testing.T) {
	good := tagged{Between: time.Second, Mode: "a"}
	if got := Violations(reflect.ValueOf(good)); got != nil {
		t.Error(got)
	}
	bad := tagged{Interval: time.Millisecond, Between: time.Hour, Count: 6, Share: math.NaN(), Mode: "d"}
	want := []Violation{
		{"interval", "must be at least 100ms, or 0, which disables it"},
		{"between", "must be between 1s and 1m0s"},
		{"count", "must be at most 5"},
		{"share", "must be between 0 and 1"},
		{"mode", "must be a, b or c"},
	}
	if diff := cmp.Diff(want, Violations(reflect.ValueOf(bad))); diff != "" {
		t.Error(diff)
	}
}

func TestTagsThatCannotBeUsed(t *testing.T) {
	for want, config := range map[string]any{
		"has the tag usage and no name of a flag": struct {
			A int `usage:"A"`
		}{},
		"declares a flag and cannot be set": struct {
			a int `flag:"a" usage:"A"`
		}{},
		`has the tag min:"x", which its type cannot hold`: struct {
			A int `flag:"a" usage:"A" min:"x"`
		}{},
		`has the tag max:"1", which its type cannot hold`: struct {
			A time.Duration `flag:"a" usage:"A" max:"1"`
		}{},
		"has the tag min and no flag": struct {
			A int `flag:"-" min:"1"`
		}{},
	} {
		v := reflect.ValueOf(config)
		var texts []string
		for _, err := range NewSchema().Add("m", v, func(fs *pflag.FlagSet) { TagFlags(fs, v) }) {
			texts = append(texts, err.Error())
		}
		if got := strings.Join(texts, "\n"); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
