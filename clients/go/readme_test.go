package callgate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestReadmeProgramRunsInAModuleOfItsOwn(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindSubmatch(readme)
	here, err := os.Getwd()
	if program == nil || err != nil {
		t.Fatal("the README has no program", err)
	}
	folder := t.TempDir()
	module := "module agent\n\ngo 1.22\n\nrequire callgate v0.0.0\n\nreplace callgate => " + here + "\n"
	for name, text := range map[string]string{"go.mod": module, "main.go": string(program[1])} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("go", "run", ".")
	command.Dir, command.Env = folder, append(os.Environ(), "CALLGATE_SERVER="+server)
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "true {") != 2 || strings.Count(string(out), `"warning"`) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
}
